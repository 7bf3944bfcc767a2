"""Speed and memory, ours against others: the tool `bench` of a clone and of the image, not of the installed package."""
