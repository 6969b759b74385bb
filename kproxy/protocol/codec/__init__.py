"""Bytes to values and back: decoders and encoders compiled from layouts, and slow ones that say what is wrong."""
