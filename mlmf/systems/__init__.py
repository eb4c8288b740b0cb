"""Memory systems under test, all behind one interface: reset, observe, answer."""
