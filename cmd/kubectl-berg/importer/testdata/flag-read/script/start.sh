#!/bin/sh
echo "$GZCTF_FLAG" > /flag
unset GZCTF_FLAG
exec apache2-foreground
