package supervisor

// changes are the planned changes of the chain, one at a time, from what is asked for to the end of the probation.
type changes struct {
	of    *Supervisor
	slots *slots // of operations
}
