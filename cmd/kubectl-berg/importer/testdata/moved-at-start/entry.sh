#!/bin/bash
# mv is below
mv /flag.txt /flag$(tr -dc a-z < /dev/urandom | head -c 9).txt
exec nginx
