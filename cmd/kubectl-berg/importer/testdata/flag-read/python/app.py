import os
DEBUG_FLAGS = os.environ.get("DEBUG_FLAGS")
FLAG = os.environ["CTF_FLAG"]
