set -u
# Every failure is written to a result of this step, which no later step can write to.
exec 3>&2
trap 'code=$?; if [ $code -ne 0 ]; then tail -c 600 /tmp/problem >"$PROBLEM" 2>/dev/null; cat /tmp/problem >&3 2>/dev/null; fi; exit $code' EXIT
exec 2>/tmp/problem
set -e
export HOME=/tmp GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1
mkdir -p "$SOURCE/repository"
cd "$SOURCE/repository"
git init --quiet .
git remote add origin "$URL"
if [ -n "$TOKEN_FILE" ]; then
	[ -s "$TOKEN_FILE" ] || { echo "spec.gitRepository.secretRef: the Secret has no key token" >&2; exit 1; }
	# Asked by git itself, so that the token stands in no argument, variable or file of the clone;
	# and for the server of the URL alone, as it may send on to another one.
	host=${URL#*://}
	server=${URL%%://*}://${host%%/*}
	fetch() {
		git -c credential.helper= -c "credential.$server.helper="'!f() { test "$1" = get || exit 0; echo "username=$GIT_USER"; echo "password=$(cat "$TOKEN_FILE")"; }; f' \
			fetch --quiet --no-tags --depth 1 origin "$1"
	}
else
	fetch() { git -c credential.helper= fetch --quiet --no-tags --depth 1 origin "$1"; }
fi
if [ -n "$COMMIT" ]; then
	fetch "$COMMIT"
elif [ -n "$BRANCH" ]; then
	fetch "refs/heads/$BRANCH"
else
	fetch HEAD
fi
git checkout --quiet --detach FETCH_HEAD
commit=$(git rev-parse --verify 'HEAD^{commit}')
if [ -n "$COMMIT" ] && [ "$COMMIT" != "$commit" ]; then
	echo "the server gave commit $commit for $COMMIT" >&2
	exit 1
fi
if [ ! -d "$CONTEXT" ]; then
	echo "spec.gitRepository: path and rootDirectory are no directory of the repository at $commit: ${CONTEXT#"$SOURCE/repository"}" >&2
	exit 1
fi
if [ ! -e "$CONTEXT/Dockerfile" ] && [ ! -L "$CONTEXT/Dockerfile" ]; then
	if [ -z "$DOCKERFILE" ]; then
		echo "there is no Dockerfile in ${CONTEXT#"$SOURCE/repository"}/, and none can be made: that needs BUILD_BASE_IMAGE, and spec.gitRepository.buildCommand or startCommand" >&2
		exit 1
	fi
	printf '%s' "$DOCKERFILE" >"$CONTEXT/Dockerfile"
fi
printf '%s' "$commit" >"$RESULT"
