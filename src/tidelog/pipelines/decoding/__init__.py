"""From the bytes of records to columns, and back: JSON by Spark itself, Avro and Protobuf in Python, batch by batch."""
