#!/bin/sh
chmod 600 /app/flag.txt
exec python -m http.server 9002
