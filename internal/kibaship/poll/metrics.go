package poll

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// questions counts questions to git servers.
var questions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kibaship_repository_questions_total",
	Help: "Questions to git servers about the newest commits of repositories that pushes build, by provider and result: answered or failed.",
}, []string{"provider", "result"})

func init() { metrics.Registry.MustRegister(questions) }

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "answered"
}
