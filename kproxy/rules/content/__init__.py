"""Content of records: changes, schemas and decoded values.

`edits`: changes of records that the rules of a message share · `avro_types`: schemas of Avro and decoded values ·
`avro`: values at a path, by compiled code · `schemas`: ids in front of values, the cache of a registry's schemas, and
decoded values for viewers.

Imports: filter, protocol.
"""
