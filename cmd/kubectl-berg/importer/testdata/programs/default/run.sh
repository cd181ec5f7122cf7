#!/bin/sh
exec socat TCP-LISTEN:${PORT:-4006},reuseaddr,fork EXEC:/chall
