"""Writes flags as encoders of Python do. Run: python3 encode.py <flags.json >python.json"""
import base64, binascii, html, json, quopri, shlex, sys, urllib.parse
from xml.sax import saxutils

out = []
for flag in json.load(sys.stdin):
    raw = flag.encode()
    out.append({"flag": flag, "texts": {
        "quote": urllib.parse.quote(flag), "quote all": urllib.parse.quote(flag, safe=""), "quote_plus": urllib.parse.quote_plus(flag),
        "lower quote": "".join("%%%02x" % b for b in raw), "quoted twice": urllib.parse.quote(urllib.parse.quote(flag)),
        "html": html.escape(flag), "xml": saxutils.escape(flag), "charrefs": flag.encode("ascii", "xmlcharrefreplace").decode(),
        "hex charrefs": "".join("&#x%x;" % ord(c) for c in flag), "html twice": html.escape(html.escape(flag)),
        "repr": repr(flag)[1:-1], "ascii": ascii(flag)[1:-1], "bytes": repr(raw)[2:-1], "backslashreplace": flag.encode("ascii", "backslashreplace").decode(),
        "json": json.dumps(flag)[1:-1], "json in json": json.dumps(json.dumps(flag))[3:-3], "json unicode": json.dumps(flag, ensure_ascii=False)[1:-1],
        "escapes": "".join("\\x%02x" % b for b in raw), "octal": "".join("\\%03o" % b for b in raw),
        "hex": raw.hex(), "hex with colons": raw.hex(":"), "hex list": ", ".join("0x%02X" % b for b in raw), "hexlify": binascii.hexlify(raw, " ").decode(),
        "base64": base64.b64encode(raw).decode(), "base64 after 1": base64.b64encode(b"x" + raw + b"y").decode(),
        "base64 after 2": base64.urlsafe_b64encode(b"xy" + raw).decode(), "base64 lines": base64.encodebytes(b"x" * 49 + raw).decode(),
        "quoted printable": "".join("=%02X" % b for b in raw),
    }})
json.dump(out, sys.stdout, indent=1)
print()
