"""Composition: front door, sessions, rooms, history, execs, HTTP API, settings."""
