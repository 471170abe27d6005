package guard

// Peer is a process at the other end of a connection, and its user.
type Peer struct{ PID, UID int }
