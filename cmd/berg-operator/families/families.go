// Package families is the only list of the families that the operator runs.
package families

import (
	"github.com/bergctf/berg-operator/internal/berg"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/hexactf"
	"github.com/bergctf/berg-operator/internal/kibaship"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/quix"
	"github.com/bergctf/berg-operator/internal/tunnel"
)

// All returns every family, with new variables for its settings.
func All() []family.Family {
	return []family.Family{
		berg.New(&config.Berg{}),
		quix.New(&config.Quix{}),
		hexactf.New(&config.HexaCTF{}),
		tunnel.New(&config.Tunnel{}),
		kibaship.New(&config.KibaShip{}),
	}
}
