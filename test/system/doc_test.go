// Package system runs the whole of Catena against what its users, its machine and its
// network do to it: wrong configurations and binaries, orders of stages that nobody has
// tried before, processes that are killed or suspended, and requests that want to be
// taken for others.
//
// The test binary is also the stages that it needs: under the name catena-stage-NAME
// it is the stage NAME (see stages).
package system
