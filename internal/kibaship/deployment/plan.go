package deployment

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Plan is every object that a run consists of.
type Plan struct {
	Pipeline    *unstructured.Unstructured
	PipelineRun *unstructured.Unstructured
}

func plan(in Inputs) Plan { return Plan{Pipeline: pipeline(in), PipelineRun: newPipelineRun(in)} }
