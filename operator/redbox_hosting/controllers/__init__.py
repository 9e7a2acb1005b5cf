"""The controllers: one folder of modules for each kind or group of kinds."""
