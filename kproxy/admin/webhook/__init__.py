"""Webhook that puts kproxy into pods as a sidecar: a mutating admission webhook (admission.k8s.io/v1)."""
