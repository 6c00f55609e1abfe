"""Grafana's dashboards as code: `python -m axiom_cli.dashboards` writes deploy/grafana/dashboards.

`queries` says how figures are asked for, `layout` how they are shown; then one module a dashboard.
Needs grafana-foundation-sdk, which only development installs.
"""
