package project

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

func quotas(in Inputs) []*corev1.ResourceQuota {
	if len(in.Spec.Quota) == 0 {
		return nil
	}
	return []*corev1.ResourceQuota{{
		ObjectMeta: in.ours(naming.Limits(in.Name)),
		Spec:       corev1.ResourceQuotaSpec{Hard: in.Spec.Quota.DeepCopy()},
	}}
}

// limitRanges writes the defaults out, because the API server would take the maximum as the default.
func limitRanges(in Inputs) []*corev1.LimitRange {
	var items []corev1.LimitRangeItem
	if c := in.Spec.ContainerLimits; c != nil {
		items = append(items, corev1.LimitRangeItem{
			Type: corev1.LimitTypeContainer, Max: c.Max.DeepCopy(),
			Default: overlaid(c.Max, c.Default), DefaultRequest: overlaid(c.Max, c.Default, c.DefaultRequest),
		})
	}
	// The schema lets numbers with a unit through alone.
	if largest, err := resource.ParseQuantity(in.Spec.Volumes.MaxStorageSize); err == nil {
		items = append(items, corev1.LimitRangeItem{
			Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: largest},
		})
	}
	if len(items) == 0 {
		return nil
	}
	return []*corev1.LimitRange{{ObjectMeta: in.ours(naming.Limits(in.Name)), Spec: corev1.LimitRangeSpec{Limits: items}}}
}

// overlaid fills in the defaults of the API server, so that the stored object equals the written
// one: a container without a limit gets the largest default, and its request equals its limit.
func overlaid(lists ...corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range lists {
		for name, amount := range list {
			out[name] = amount.DeepCopy()
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// networkPolicies cut the namespace off: pods reach each other and the name servers, and of
// others only the namespaces that the Project names reach them. Kubernetes adds policies up, so a second one can only let more
// through. checkOpenings looks for such policies.
func networkPolicies(in Inputs) []*networkingv1.NetworkPolicy {
	wanted := in.Spec.NetworkPolicy
	if wanted == nil {
		return nil
	}
	among := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	ingress := []networkingv1.NetworkPolicyIngressRule{{From: among}}
	if len(wanted.IngressFrom) > 0 {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicy.InNamespaces(wanted.IngressFrom...)}},
		})
	}
	egress := []networkingv1.NetworkPolicyEgressRule{{To: among}, netpolicy.ToDNS()}
	switch wanted.Egress {
	case kibashipv1.EgressNone:
	case kibashipv1.EgressInternet:
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: netpolicy.Blocks(netpolicy.Everywhere, netpolicy.NotTheWorld)})
	case kibashipv1.EgressAll:
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{})
	}
	return []*networkingv1.NetworkPolicy{{
		ObjectMeta: in.ours(naming.Limits(in.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      egress,
		},
	}}
}
