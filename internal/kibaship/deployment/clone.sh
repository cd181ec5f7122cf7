set -u
# Every failure is written to a result of this step, which no later step can write to.
exec 3>&2
# A full disk takes no report. The node keeps what is printed here.
report() {
	if [ -s /tmp/problem ]; then
		explain >>/tmp/problem || :
		tail -c 600 /tmp/problem >"$PROBLEM" || :
		cat /tmp/problem >&3
	else
		echo "exit code $1, and no space left on device for the cause" >&3
	fi 2>/dev/null
}
trap 'code=$?; [ $code -eq 0 ] || report $code; exit $code' EXIT
exec 2>/tmp/problem
# What to do, where git alone says what it did.
explain() {
	if grep -q "terminal prompts disabled" /tmp/problem; then
		echo "The git server asks for a login: the repository is private, or does not exist. Set spec.gitRepository.secretRef, or correct spec.gitRepository.repository"
	elif grep -q -e "Operation too slow" -e "timed out" -e "Timeout was reached" /tmp/problem; then
		echo "The git server $URL does not answer, or sends too slowly: see whether it works, and ask for another run"
	elif grep -q "Authentication failed" /tmp/problem; then
		echo "The git server refuses the token in the Secret of spec.gitRepository.secretRef: put one there that can read the repository"
	fi
}
set -e
# What a repository says of its submodules reaches no file of this container, and starts no program.
export GIT_ALLOW_PROTOCOL="${GIT_ALLOW_PROTOCOL:-https:http}"
export HOME=/tmp GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1
# A transfer ends when it has been slower than this, in bytes per second, for so many seconds: git alone waits without a limit.
export GIT_HTTP_LOW_SPEED_LIMIT="${GIT_HTTP_LOW_SPEED_LIMIT:-1000}" GIT_HTTP_LOW_SPEED_TIME="${GIT_HTTP_LOW_SPEED_TIME:-60}"
mkdir -p "$SOURCE/repository"
cd "$SOURCE/repository"
git init --quiet .
git remote add origin "$URL"
# A submodule may name the same server as git@SERVER:..., for which there is no key here.
host=${URL#*://}
host=${host%%/*}
server=${URL%%://*}://$host
helper=
if [ -n "$TOKEN_FILE" ]; then
	[ -s "$TOKEN_FILE" ] || { echo "spec.gitRepository.secretRef: the Secret has no key token" >&2; exit 1; }
	# Asked by git itself, so that the token stands in no argument, variable or file of the clone;
	# and for the server of the URL alone, as it may send on to another one.
	helper='!f() { test "$1" = get || exit 0; echo "username=$GIT_USER"; echo "password=$(cat "$TOKEN_FILE")"; }; f'
fi
authenticated() {
	git -c credential.helper= -c "credential.$server.helper=$helper" \
		-c "url.$server/.insteadOf=git@${host%%:*}:" -c "url.$server/.insteadOf=ssh://git@${host%%:*}/" "$@"
}
fetch() { authenticated fetch --quiet --no-tags --depth 1 origin "$1"; }
if [ -n "$COMMIT" ]; then
	fetch "$COMMIT"
elif [ -n "$TAG" ]; then
	fetch "refs/tags/$TAG"
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
if [ -e .gitmodules ]; then
	authenticated submodule --quiet update --init --recursive --depth 1 ||
		{ echo "A submodule cannot be fetched: its URL in .gitmodules must be one that this build can read, at $server with the same login" >&2; exit 1; }
fi
# Files of Git LFS are in the repository as pointers, of which no image must be built.
large() {
	git grep -q 'filter=lfs' HEAD -- ':(glob)**/.gitattributes' || return 0
	if ! git lfs version >/dev/null 2>&1; then
		echo "The repository keeps files in Git LFS, and the image of BUILD_GIT_IMAGE has no git-lfs: use an image that has it" >&2
		return 1
	fi
	git lfs install --local --skip-repo >&2
	authenticated lfs pull || {
		echo "A file of Git LFS cannot be fetched: its server, at $server unless .lfsconfig names another one, must have it, and let this build read it with the same login" >&2
		return 1
	}
}
large
if [ -e .gitmodules ]; then
	git submodule --quiet foreach --recursive 'printf "%s\n" "$displaypath"' >"$SOURCE/repository/.git/submodules"
	while IFS= read -r submodule; do
		( cd "$submodule" && large ) || exit 1
	done <"$SOURCE/repository/.git/submodules"
fi
if [ ! -d "$CONTEXT" ]; then
	echo "spec.gitRepository: path and rootDirectory are no directory of the repository at $commit: ${CONTEXT#"$SOURCE/repository"}" >&2
	exit 1
fi
file=$CONTEXT/${DOCKERFILE_PATH:-Dockerfile}
if [ ! -e "$file" ] && [ ! -L "$file" ]; then
	if [ -n "$DOCKERFILE_PATH" ]; then
		echo "spec.gitRepository.dockerfilePath: there is no file ${file#"$SOURCE/repository"} in the repository at $commit" >&2
		exit 1
	fi
	if [ -z "$DOCKERFILE" ]; then
		echo "there is no Dockerfile in ${CONTEXT#"$SOURCE/repository"}/, and none can be made: that needs BUILD_BASE_IMAGE, and spec.gitRepository.buildCommand or startCommand" >&2
		exit 1
	fi
	printf '%s' "$DOCKERFILE" | base64 -d >"$file"
fi
seconds=$(git log -1 --format=%ct)
# What git keeps of itself differs between two clones of a commit, and says where a private repository is: no image has it.
find "$SOURCE/repository" -name .git -prune -exec rm -rf {} +
printf '%s' "$seconds" >"$TIME"
printf '%s' "$commit" >"$RESULT"
