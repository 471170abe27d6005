// Stage ratelimit limits the requests a second of each user.
package main

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/sdk"
)

// Config of the stage, with the defaults in main.
type Config struct {
	Rate   float64  `json:"rate" jsonschema:"requests a second of each user"`
	Burst  int      `json:"burst" jsonschema:"requests that a user can make at once after a pause"`
	Exempt []string `json:"exempt" jsonschema:"groups whose members are not limited"`
}

// Validate returns an error for limits that would refuse every request.
func (c *Config) Validate() error {
	switch {
	case c.Rate <= 0:
		return sdk.ConfigProblem{Key: "rate", Message: "want more than 0"}
	case c.Burst < 1:
		return sdk.ConfigProblem{Key: "burst", Message: "want at least 1"}
	}
	return nil
}

func defaults() Config {
	return Config{Rate: 20, Burst: 40, Exempt: []string{"system:masters", "system:catena:stages", "system:nodes"}}
}

func main() {
	sdk.Main(sdk.Stage{Name: "ratelimit", Summary: "limits the requests of each user", New: ratelimit, Config: defaults(),
		Needs: &sdk.Needs{Claims: []sdk.Claim{sdk.Prefix("/")}}})
}

func ratelimit(env *sdk.Env) (http.Handler, error) {
	var cfg Config
	if err := env.Config(&cfg); err != nil {
		return nil, err
	}
	users := newBuckets(cfg.Rate, cfg.Burst, time.Now)
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "ratelimit_refused_total", Help: "Requests that were refused."})
	known := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ratelimit_users", Help: "Users whose bucket is not full."}, users.size)
	env.Metrics().MustRegister(refused, known)
	env.ClaimPrefix("/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := sdk.UserFrom(r.Context())
		if user == nil || user.In(cfg.Exempt...) {
			env.Next.ServeHTTP(w, r)
			return
		}
		if wait := users.take(user.Name); wait > 0 {
			refused.Inc()
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			sdk.Error(w, "too many requests of user "+strconv.Quote(user.Name), http.StatusTooManyRequests)
			return
		}
		env.Next.ServeHTTP(w, r)
	}), nil
}
