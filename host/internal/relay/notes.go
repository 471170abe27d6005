package relay

// takeNotes takes what a stage has to say about a request that it declines: what is for
// the host, and warnings for the client, which join those of the stage that answers.
func (x *exchange) takeNotes() {
	for _, f := range x.answer.fields {
		switch {
		case internal(f.key):
			x.tell(f)
		case f.key == "Warning":
			x.w.Header().Add(f.key, f.value)
		}
	}
}
