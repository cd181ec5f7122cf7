#!/bin/sh
exec socat tcp6-l:7331,reuseaddr,fork EXEC:/chall
