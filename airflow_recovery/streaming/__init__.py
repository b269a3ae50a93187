"""The mode of a region at a channel: it runs at the same time as the region at the channel's other end."""
