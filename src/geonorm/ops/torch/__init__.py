"""The torch backend: plain tensor operations, for every device and every case."""
