"""Interventions: whether a model uses what probes read from it, measured against exact counterfactuals."""
