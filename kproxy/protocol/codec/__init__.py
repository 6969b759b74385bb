"""Codec: decoders and encoders compiled from layouts, and slow ones that locate errors. Imports `table` and
`framing`."""
