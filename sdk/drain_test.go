package sdk

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Every signal comes within the time that the host gives, and not all come at once.
func TestDrainSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spread, count = 10 * time.Second, 100
		d := newDrain()
		var took []time.Duration
		done := make(chan time.Duration)
		wait := func(begin time.Time) {
			signal := d.signal()
			go func() {
				<-signal
				done <- time.Since(begin)
			}()
		}
		forgotten := d.signal()
		begin := time.Now()
		for range count / 2 {
			wait(begin)
		}
		d.begin(spread)
		d.begin(time.Hour) // does not put it off
		for range count / 2 {
			wait(begin)
		}
		d.forget(forgotten)
		for range count {
			took = append(took, <-done)
		}
		slices.Sort(took)
		if first, last := took[0], took[count-1]; last > spread || first > spread/4 || last < spread*3/4 {
			t.Errorf("from %v to %v", first, last)
		}
		time.Sleep(2 * spread)
		select {
		case <-forgotten:
			t.Error("the signal of a request that has ended was closed")
		case <-d.signal():
		default:
			t.Error("a signal that comes late is not closed at once")
		}
	})
}

// A later call brings the end nearer, for the requests that wait already and for those that come.
func TestDrainAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain()
		before := d.signal()
		d.begin(time.Hour)
		after := d.signal()
		time.Sleep(time.Second)
		d.begin(time.Second)
		time.Sleep(time.Second)
		for _, signal := range []chan struct{}{before, after, d.signal()} {
			select {
			case <-signal:
			default:
				t.Error("a signal is not closed at the end")
			}
		}
		time.Sleep(2 * time.Hour) // nothing is closed twice
	})
}

// A request is not told to end in its first two seconds, if there is time.
func TestDrainSparesTheYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = 3 * time.Second
		for spread, least := range map[time.Duration]time.Duration{5 * time.Second: leastAge, short: 0, 0: 0} {
			d := newDrain()
			ages := make(chan time.Duration)
			for i := range 200 {
				if i == 100 {
					d.begin(spread)
				}
				signal, began := d.signal(), time.Now()
				go func() {
					<-signal
					ages <- time.Since(began)
				}()
			}
			first := spread
			for range 200 {
				age := <-ages
				first = min(first, age)
				if age < least || age > spread {
					t.Errorf("within %s, at the age of %s", spread, age)
				}
			}
			if least == 0 && first > spread/4 {
				t.Errorf("within %s, the first at the age of %s", spread, first)
			}
		}
	})
}

// wait returns at the moment when the last request ends, or when it may not wait longer.
func TestDrainWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain()
		if n := d.wait(t.Context()); n != 0 {
			t.Errorf("%d running in an idle stage", n)
		}
		for i := range 3 {
			d.enter()
			time.AfterFunc(time.Duration(i+1)*time.Second, d.leave)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if n := d.wait(ctx); n != 2 || time.Since(begin) != 1500*time.Millisecond {
			t.Errorf("%d running after %v", n, time.Since(begin))
		}
		for range 2 {
			go d.wait(t.Context())
		}
		if n := d.wait(t.Context()); n != 0 || time.Since(begin) != 3*time.Second {
			t.Errorf("%d running after %v", n, time.Since(begin))
		}
	})
}
