// Command resolvers is a toolbox with the resolvers of the two usual C libraries: resolve-glibc and
// resolve-musl print the addresses of a name, as programs of most images find them. They are not the
// same: where an answer is not to their taste, one asks on and the other gives up.
//
// The two are compiled from libc/resolve.c by Debian's clang-19, with its libc6-dev and musl-dev.
package main

import (
	"context"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

func main() {
	toolbox.Main(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}
