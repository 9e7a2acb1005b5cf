"""CRDs and their schemas, from models."""
