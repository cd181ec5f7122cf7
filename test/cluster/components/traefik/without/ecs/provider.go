// Package ecs stands in for Traefik's provider of routes from Amazon ECS. Here routes come from the
// Gateway API.
package ecs

import (
	"errors"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/safe"
)

// Provider provides nothing.
type Provider struct{}

// Init refuses to be used.
func (*Provider) Init() error { return errors.New("this Traefik is built without Amazon ECS") }

// Provide is not reached.
func (*Provider) Provide(chan<- dynamic.Message, *safe.Pool) error { return nil }
