"""The config document: its sections and limits, how it is read and checked, and what a change of it means."""
