"""The two directions of a connection: bytes become frames, frames are looked at, and go on, changed or not."""
