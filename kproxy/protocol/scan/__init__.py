"""Fields found in frames without decoding: heads, walks, tails that stream, sketches."""
