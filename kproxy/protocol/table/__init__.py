"""The protocol as data: APIs, fields and versions from `messages/*.yaml`, their layouts, shapes, errors."""
