"""What the actors need from the world, as small protocols; adapters implement them, one contract suite each."""
