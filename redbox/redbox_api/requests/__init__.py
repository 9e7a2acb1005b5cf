"""Requests to red-box, whatever they ask for."""
