FROM debian:12
COPY flag.txt /home/ctf/
