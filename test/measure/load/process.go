package main

import (
	"fmt"
	"os"

	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

// processes are those that are measured, by name.
type processes map[string]int

// findProcesses finds what runs of the cluster with a state directory.
func findProcesses(state string) (processes, error) {
	all, err := process.Of(state)
	if err != nil {
		return nil, err
	}
	found := processes{}
	for _, p := range all {
		if p.Leader {
			found.add(p.Component, p.PID)
		}
	}
	if found["kube-apiserver"] == 0 {
		return nil, fmt.Errorf("no API server of the cluster in %s runs on this machine", state)
	}
	found.add("load", os.Getpid())
	return found, nil
}

func (p processes) add(name string, pid int) { p[name] = pid }

// cpu returns how many seconds of a processor a process has used.
func (p processes) cpu(name string) float64 { return machine.CPU(p[name]) }

// memory returns how many MiB of a process are resident.
func (p processes) memory(name string) float64 {
	m, _ := machine.ReadMemory(p[name]) // 0 for one that has ended
	return round(float64(m.Resident)/(1<<20), 1)
}

// peak returns how many MiB of a process were resident at most.
func (p processes) peak(name string) float64 {
	m, _ := machine.ReadMemory(p[name]) // 0 for one that has ended
	return round(float64(m.Peak)/(1<<20), 1)
}
