// Package system runs the whole of Catena against what its users, its machine and its
// network do to it: wrong configurations and binaries, unusual orders of stages,
// processes that are killed or suspended, and requests with forged identities.
//
// The test binary is also the stages that it needs: under the name catena-stage-NAME
// it is the stage NAME (see stages).
package system
