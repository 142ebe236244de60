"""What can only be measured with the model at hand, now and then during a run. Begin with probes.py."""
