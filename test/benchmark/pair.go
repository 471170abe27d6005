package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/catena-dev/catena/test/benchmark/internal/apiserver"
	"github.com/catena-dev/catena/test/benchmark/internal/figure"
	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	// connections is the number of HTTP/2 connections to each system.
	connections = 4
	// inFlight is the number of requests at a time.
	inFlight = 16
)

// system is one of the two systems, with clients.
type system struct {
	*apiserver.Server
	clients []*load.Client
	serial  atomic.Int64
	// startPSS is the memory of the server when it became ready, in bytes.
	startPSS int64
}

// unique returns a name that no object of the system has yet.
func (s *system) unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, s.serial.Add(1)) }

// pair is both systems, by side.
type pair [2]*system

// startPair starts both systems without data, in directories called name, in the order of a round.
func (c *comparison) startPair(ctx context.Context, name string, round int) (*pair, error) {
	var p pair
	for _, side := range order(round) {
		s, err := c.startSystem(ctx, side, name)
		if err != nil {
			p.stop()
			return nil, err
		}
		p[side] = s
	}
	return &p, nil
}

func (c *comparison) startSystem(ctx context.Context, side figure.Side, name string) (*system, error) {
	server, err := c.newServer(side, name)
	if err != nil {
		return nil, err
	}
	return connect(ctx, server)
}

// connect starts a server and connects to it.
func connect(ctx context.Context, server *apiserver.Server) (*system, error) {
	if _, err := server.Start(ctx); err != nil {
		return nil, err
	}
	s := &system{Server: server, startPSS: server.PSS()}
	var err error
	if s.clients, err = load.Connect(ctx, server.Config, connections); err != nil {
		s.stop()
		return nil, fmt.Errorf("connect to %s: %w", server.Name, err)
	}
	return s, nil
}

// stop ends the system. That it does so slowly is no reason to lose figures.
func (s *system) stop() {
	load.Close(s.clients)
	if err := s.Stop(); err != nil {
		log.Print(err)
	}
}

func (p *pair) stop() {
	for _, s := range p {
		if s != nil {
			s.stop()
		}
	}
}
