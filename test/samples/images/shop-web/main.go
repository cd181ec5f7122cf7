// Command shop-web is the front of the sample shop: visitors write reviews, and a page shows where
// visitors come from. Two small mistakes together give the flag away: reviews are shown as the HTML
// they are, and the addresses visitors come from are published with everything in them.
//
// It listens twice: the first port is for players, over the gateway, and the second for the
// moderator's bot, inside the instance.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	playerPort    = "8080"
	moderatorPort = "8000"
)

func main() {
	toolbox.Main(func(ctx context.Context) error {
		database := os.Getenv("DATABASE_ENDPOINT")
		if database == "" {
			return errors.New("DATABASE_ENDPOINT is not set: name the port of the database container \"database\"")
		}
		return toolbox.ServeHTTP(ctx, newShop(&databaseClient{address: database}),
			toolbox.Address(playerPort), toolbox.Address(moderatorPort))
	})
}
