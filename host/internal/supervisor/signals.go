package supervisor

import "time"

// Notify tells all stages that the server has come to a lifecycle signal, and returns at
// once. Generations that come later are told too.
func (s *Supervisor) Notify(signal string, at time.Time) {}
