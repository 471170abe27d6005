package store

import "testing"

// A store can be closed while it opens, and then while it is open. The directory is free afterwards.
func TestOpening(t *testing.T) {
	t.Parallel()
	o := optionsFor(newDir(t))
	if err := Begin(t.Context(), o).Close(); err != nil {
		t.Error(err)
	}
	s := Begin(t.Context(), o)
	opened, err := s.Await()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Await(); again != opened || err != nil {
		t.Errorf("the second time: %v, %v", again, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	lock, err := LockDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// One that does not respond is given up when it is closed.
func TestOpeningIsGivenUp(t *testing.T) {
	t.Parallel()
	s := Begin(t.Context(), Options{Dir: newDir(t), Endpoints: []string{"https://" + deafAddress(t)}})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Await(); err == nil {
		t.Error("it is open")
	}
}
