package supervisor

import (
	"slices"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/usage"
)

// freshUsage is for how long what was measured last does for a status or a scrape.
const freshUsage = time.Second

// Usage is what a process and all that it has started use.
type Usage struct {
	// MemoryBytes is the memory that the kernel cannot drop: see package usage.
	MemoryBytes int64 `json:"memoryBytes"`
	// CPUSeconds is the time since the start of the process.
	CPUSeconds float64 `json:"cpuSeconds"`
	// CPUs is how many CPUs it has used between the latest two measurements; absent before the second.
	CPUs float64 `json:"cpus,omitempty"`
}

// measurement is what was measured of a process, and when.
type measurement struct {
	usage.Usage
	at   time.Time
	cpus float64
}

// StageUsage is what all processes of a stage use.
type StageUsage struct {
	Stage string
	// Memory is in bytes.
	Memory int64
	// CPU is the time of all processes that the stage has had. It never decreases.
	CPU time.Duration
}

// measured says when the processes were measured last.
type measured struct {
	mu sync.Mutex
	at time.Time
}

// Usage measures what the stages of the chain use, from head to tail. There is nothing on
// systems that do not tell.
func (s *Supervisor) Usage() []StageUsage {
	if !s.refresh() {
		return nil
	}
	held := s.lock()
	defer held.unlock()
	all := make([]StageUsage, len(held.chain))
	for i, st := range held.chain {
		all[i] = StageUsage{Stage: st.name, CPU: st.guarded.cpu}
		for _, u := range st.guarded.used {
			all[i].Memory += u.Memory
			all[i].CPU += u.CPU
		}
	}
	return all
}

// MeasuredStatus is Status with what each process uses now.
func (s *Supervisor) MeasuredStatus() []Status {
	s.refresh()
	return s.Status()
}

// refresh measures the processes unless that was done a moment ago. It reports whether it
// could.
func (s *Supervisor) refresh() bool {
	s.measured.mu.Lock()
	defer s.measured.mu.Unlock()
	if time.Since(s.measured.at) < freshUsage {
		return true
	}
	_, err := s.measure()
	if err == nil {
		s.measured.at = time.Now()
	}
	return err == nil
}

// measure measures all processes, and keeps and returns what they use.
func (s *Supervisor) measure() (map[int]usage.Usage, error) {
	processes := s.processes()
	pids := make([]int, len(processes))
	for i, p := range processes {
		pids[i] = p.PID()
	}
	if len(pids) == 0 {
		return nil, nil
	}
	all, err := usage.Of(slices.Compact(slices.Sorted(slices.Values(pids))))
	if err != nil {
		return nil, err
	}
	held := s.lock()
	defer held.unlock()
	for _, p := range processes {
		u, ok := all[p.PID()]
		if ok && !p.stage.guarded.machine.State(p.ID()).Ended() { // its time counts in usageEnded
			before, measured := p.stage.guarded.used[p.Generation]
			u.CPU = max(u.CPU, before.CPU)
			now := measurement{Usage: u, at: time.Now(), cpus: before.cpus}
			if took := now.at.Sub(before.at); measured && took > 0 {
				now.cpus = (u.CPU - before.CPU).Seconds() / took.Seconds()
			}
			p.stage.guarded.used[p.Generation] = now
		}
	}
	return all, nil
}

// usageEnded adds the time of a process that has ended to that of its stage.
func (s *stageState) usageEnded(g *generation.Generation) {
	s.cpu += max(s.used[g].CPU, g.CPU())
	delete(s.used, g)
}

// usageOf is what was measured last of a process, nil if nothing was.
func (s *stageState) usageOf(g *generation.Generation) *Usage {
	u, ok := s.used[g]
	if !ok {
		return nil
	}
	return &Usage{MemoryBytes: u.Memory, CPUSeconds: u.CPU.Seconds(), CPUs: u.cpus}
}
