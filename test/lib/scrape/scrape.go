// Package scrape reads the metrics that a program serves to Prometheus.
package scrape

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the values of one scrape. A histogram is several series: name_bucket, name_sum
// and name_count; a summary likewise.
type Metrics []*model.Sample

// Series returns all values by series, written as Prometheus writes them: name{a="b", c="d"}
// with the labels in alphabetical order, or the name alone where there are none.
func (m Metrics) Series() map[string]float64 {
	all := make(map[string]float64, len(m))
	for _, sample := range m {
		all[sample.Metric.String()] = float64(sample.Value)
	}
	return all
}

// Sum adds up the series of a name whose labels match; a nil match takes all. It is 0 where
// there is no such series.
func (m Metrics) Sum(name string, match func(labels model.Metric) bool) float64 {
	sum := 0.0
	for _, sample := range m {
		if string(sample.Metric[model.MetricNameLabel]) == name && (match == nil || match(sample.Metric)) {
			sum += float64(sample.Value)
		}
	}
	return sum
}

// StatusError is an answer other than 200 OK.
type StatusError struct {
	Code int // of HTTP
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the metrics were answered with %d %s", e.Code, http.StatusText(e.Code))
}

// client does not check certificates: the operator signs its own. It keeps no connection, so
// that a scrape never meets one of a process that has ended.
var client = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	DisableKeepAlives: true,
	// To compress the answer would be work that only the test causes.
	DisableCompression: true,
}}

// Fetch scrapes a URL of http or https, with a bearer token unless it is empty. An answer other
// than 200 is a *StatusError.
func Fetch(ctx context.Context, url, token string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &StatusError{response.StatusCode}
	}
	return Parse(response.Body)
}

// Parse reads metrics in Prometheus' text format.
func Parse(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return Metrics(samples), nil
}
