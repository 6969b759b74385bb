"""Admission webhook of Kubernetes that injects kproxy as a sidecar.

`server.run_webhook` is the entry point; the webhook imports the HTTP server, guard and problems of `kproxy.admin`.
"""
