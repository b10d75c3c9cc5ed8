"""Every hour of a profile crossed with every single outage: streamed into a store, and shown on a page."""
