"""The index of a slot in RocksDB; the only package that imports rocksdict."""
